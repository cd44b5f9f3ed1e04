package manager

import (
	"errors"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
)

// The calls that a manager serves besides those of pool.ManagerCall. They take the capability member, but CallTop.
const (
	CallRegister = "wherry.manager.register" // RegisterRequest → RegisterReply
	CallTop      = "wherry.manager.top"      // Nothing → Top; capability read
	CallMembers  = "wherry.manager.members"  // Nothing → MembersReply; capability read
	CallJoin     = "wherry.manager.join"     // JoinRequest → MembersReply
	CallLeave    = "wherry.manager.leave"    // LeaveRequest → Nothing; capability member or admin
)

const (
	// LeaseTime is how long a component or a manager counts as there after it was heard of last. etcd gives no less than 2 seconds.
	LeaseTime = 3 * time.Second
	// RenewTime is how often each is to be heard of: two may get lost.
	RenewTime = time.Second
)

// Limits of a Core.
const (
	// MaxJobs bounds the requests that a manager works on, and PrincipalJobs those of one principal.
	MaxJobs       = 1024
	PrincipalJobs = 256
	// PrincipalRegions bounds the regions of one principal.
	PrincipalRegions = 4096
	// MaxComponents bounds the components of a cluster.
	MaxComponents = 4096
	// maxGrants bounds the principals that one region is granted to.
	maxGrants = 1024
)

// What a manager's errors are, for errors.Is, besides package pool's.
var (
	// ErrBusy: as many requests as there can be wait already.
	ErrBusy = errors.New("manager: too many requests wait")
	// ErrTaken: another life of that name is still registered.
	ErrTaken = errors.New("manager: the name is taken")
	// ErrTime: there was no outcome in time. What was asked for may have been done.
	ErrTime = errors.New("manager: no outcome in time")
)

// RegisterRequest is what a component says of itself, at first and every RenewTime.
type RegisterRequest struct {
	cluster.Member
	Incarnation cluster.Incarnation `json:"incarnation"`
	Capacity    uint64              `json:"capacity"` // bytes that it lends to regions at most; 0: it lends none
	Local       uint64              `json:"local"`    // of them, taken by what no manager placed
	Load        int                 `json:"load"`     // percent of its processors that the process uses
	Lease       cluster.Lease       `json:"lease,omitempty"`
	Seen        cluster.Revision    `json:"seen,omitempty"` // RegisterReply.Members of the last answer
}

// RegisterReply says under which lease a component is known, and which others are there.
type RegisterReply struct {
	Lease    cluster.Lease    `json:"lease"`
	Members  cluster.Revision `json:"members"`            // the same from each manager for the same list
	Nodes    []cluster.Member `json:"nodes,omitempty"`    // all components; nil: as at Seen
	Managers []string         `json:"managers,omitempty"` // all managers: the component may register with any; each is in Nodes, too. nil: as before
}

// JoinRequest asks for a place among the managers that keep the state in etcd members of their own.
type JoinRequest struct {
	Name string `json:"name"`
	Addr string `json:"addr"` // host:port, for the other members
}

// LeaveRequest asks that a member be removed.
type LeaveRequest struct {
	Name string `json:"name"`
}

// MembersReply lists the members that keep the state.
type MembersReply struct {
	Members []cluster.StoreMember `json:"members"`
}

// Component is a component as managers know it.
type Component struct {
	cluster.Member
	Incarnation cluster.Incarnation `json:"incarnation"`
	Capacity    uint64              `json:"capacity"`
	Local       uint64              `json:"local"`
	Load        int                 `json:"load"`
}

// Top is what there is.
type Top struct {
	Manager    string         `json:"manager"`  // the one that answers; "": there is none, and each node was asked
	Managers   []string       `json:"managers"` // all that are there
	Store      string         `json:"store"`
	Components []TopComponent `json:"components"`
	Regions    []TopRegion    `json:"regions"`
	// Away are nodes of the client's that did not answer, where there is no manager, and so their regions are not listed.
	Away []string `json:"away,omitempty"`
}

// TopComponent is a component and what is placed there.
type TopComponent struct {
	Component
	Placed  uint64 `json:"placed"` // bytes of regions
	Free    uint64 `json:"free"`
	Extents int    `json:"extents"`
}

// TopRegion is a region that the asker may see.
type TopRegion struct {
	Region     uint16   `json:"region"`
	Name       string   `json:"name,omitempty"`
	Owner      string   `json:"owner"`
	Size       uint64   `json:"size"`
	Epoch      uint64   `json:"epoch"`
	State      string   `json:"state"`
	Extents    int      `json:"extents"`
	Components []string `json:"components"`
	Lost       []string `json:"lost,omitempty"` // components that are gone
}
